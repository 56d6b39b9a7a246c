"""Fine-tuning runs of TabPFN 9.2.0 on a table with texts, gaps, whole numbers and booleans: what its networks were given.

  make_untidy_runs.py FOLDER_OF_MODELS

FOLDER_OF_MODELS has v2_6_{cls,reg}.model.ckpt. Writes untidy_{cls,reg}.csv and untidy.safetensors: <task>.step<i>.est<j>.x
[context and query rows, columns] and .y [context].
"""
import os, sys
os.environ["TABPFN_DISABLE_TELEMETRY"] = "1"
import numpy as np, pandas as pd, torch
from safetensors.torch import save_file
from tabpfn.constants import ModelVersion
from tabpfn.finetuning.finetuned_classifier import FinetunedTabPFNClassifier
from tabpfn.finetuning.finetuned_regressor import FinetunedTabPFNRegressor
R = sys.argv[1] + "/"
rng=np.random.default_rng(11)
n=240
x=rng.standard_normal(n); z=rng.standard_normal(n)*3
towns=[f"{'TOWN' if k<17 else 'town'}{k:02d}" for k in range(36)]
town=[towns[k] for k in rng.integers(0,36,n)]
colour=[["red","green","blue","Zinc"][k] for k in rng.integers(0,4,n)]
grade=rng.integers(1,4,n).astype(float)
flag=rng.integers(0,2,n).astype(bool)
y=x+0.5*(np.array(colour)=="red")+0.3*flag+0.2*rng.standard_normal(n)
df=pd.DataFrame(dict(x=np.round(x,6),z=np.round(z,6),town=town,colour=colour,grade=grade,flag=flag))
df.loc[rng.random(n)<0.1,'x']=np.nan
df.loc[rng.random(n)<0.12,'town']=np.nan
df.loc[rng.random(n)<0.08,'colour']=np.nan
df.loc[rng.random(n)<0.05,'grade']=np.nan
yr=np.round(np.exp(y),6); yc=(y>0.3).astype(int)
df.assign(y=yc).to_csv("untidy_cls.csv", index=False)
df.assign(y=yr).to_csv("untidy_reg.csv", index=False)
vec = {}
for task,cls in (('cls',FinetunedTabPFNClassifier),('reg',FinetunedTabPFNRegressor)):
    hp=dict(device="cpu",epochs=1,learning_rate=1e-4,weight_decay=0.01,validation_split_ratio=None,n_finetune_ctx_plus_query_samples=120,finetune_ctx_query_split_ratio=0.2,random_state=5,early_stopping=False,use_lr_scheduler=False,n_estimators_finetune=4,n_estimators_validation=4,n_estimators_final_inference=4,save_checkpoint_interval=None)
    kw=dict(model_path=R+f"v2_6_{task}.model.ckpt",ignore_pretraining_limits=True)
    m=cls(**hp,model_version=ModelVersion("v2.6"),**{("extra_classifier_kwargs" if task=="cls" else "extra_regressor_kwargs"):kw})
    i=[0]
    fwd=type(m)._forward_with_loss
    def spy(self,batch):
        for j in range(len(batch.X_context)):
            q=f"{task}.step{i[0]}.est{j}."
            vec[q+"x"]=torch.cat([batch.X_context[j][0],batch.X_query[j][0]]).float().clone()
            vec[q+"y"]=batch.y_context[j][0].float().clone()
        i[0]+=1
        loss=fwd(self,batch)
        return loss
    type(m)._forward_with_loss=spy
    m.fit(df, yc if task == "cls" else yr)
    type(m)._forward_with_loss = fwd
save_file({k: v.contiguous() for k, v in vec.items()}, "untidy.safetensors")
